-- What lies on the disk.
SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes, count() AS parts
FROM system.parts
WHERE active AND database = currentDatabase()
GROUP BY table
HAVING rows > 1000
ORDER BY bytes DESC
