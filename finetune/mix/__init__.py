"""Trainings on a mix of data sets, each batch of one of them."""
