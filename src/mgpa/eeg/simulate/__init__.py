"""Recordings with known answers: a head, people, devices, and the files that data sets come in.

The same brain activity reaches devices that differ in noise, gain, reference, filter and clock; files are
written in the providers' layouts, with the planted truth beside them.
"""
