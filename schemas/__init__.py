"""The contract of rootrank: records, topics, codec, vocabulary and signal files. Imports nothing first-party."""
