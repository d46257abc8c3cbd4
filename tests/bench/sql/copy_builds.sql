-- The rows of the builds, last.
INSERT INTO fleet_builds_rows
SELECT * REPLACE (day + {shift:Int32} AS day)
FROM fleet_builds_rows
WHERE fleet_builds_rows.day = {day:Date}
