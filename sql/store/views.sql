-- The views of this database and what they mean.
SELECT name, comment FROM system.tables WHERE database = currentDatabase() AND engine = 'View' ORDER BY name
