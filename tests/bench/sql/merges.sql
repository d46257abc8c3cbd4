SELECT count() FROM system.merges
