-- What one day is like, so are others: built once, copied with other dates.
INSERT INTO failure_days_rows
SELECT built.* REPLACE (built.day + shift AS day, built.at + toIntervalDay(shift) AS at)
FROM (SELECT * FROM failure_days_rows WHERE day = {day:Date}) AS built
ARRAY JOIN range({first:UInt32}, {end:UInt32}) AS shift
