"""`rootrank bundle`: what belongs to an incident, in one archive for whoever repairs the hardware."""
