"""Interfaces of the outside world. A port speaks model types, names its errors, and has one contract suite."""
