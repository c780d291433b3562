"""Simulated recordings in the files of the two data sets' providers, with the planted truth beside them."""
