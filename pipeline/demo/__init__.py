"""A bundled incident, and the program that plays it through the whole pipeline."""
