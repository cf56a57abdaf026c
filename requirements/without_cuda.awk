# Prints a lock without torch and what only its CUDA build needs.
/^[a-z]/ { skip = /^(torch|triton)==|^(cuda|nvidia)-/ }
!skip
