"""What lies on disk or in a bucket: records, leases, vectors, and tables imported from elsewhere."""
