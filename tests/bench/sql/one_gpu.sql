-- A GPU that has failed.
SELECT unit
FROM failure_days
WHERE unit_kind = 'gpu'
ORDER BY unit
LIMIT 1
