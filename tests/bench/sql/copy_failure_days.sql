-- What one day is like, so are the others: built once, copied with another date.
INSERT INTO failure_days_rows
SELECT * REPLACE (day + {shift:Int32} AS day, at + toIntervalDay({shift:Int32}) AS at)
FROM failure_days_rows
WHERE failure_days_rows.day = {day:Date}
