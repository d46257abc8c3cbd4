"""Faust stages: thin shells that decode, call the pure core and send. Nothing here knows what a fault is."""
