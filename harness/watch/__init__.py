"""Every new checkpoint of a pretraining run, evaluated as it comes."""
