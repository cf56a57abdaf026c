"""Evaluation of every new checkpoint of a pretraining run, as it comes."""
