-- The rows of the builds, last.
INSERT INTO fleet_builds_rows
SELECT built.* REPLACE (built.day + shift AS day)
FROM (SELECT * FROM fleet_builds_rows WHERE day = {day:Date}) AS built
ARRAY JOIN range({first:UInt32}, {end:UInt32}) AS shift
