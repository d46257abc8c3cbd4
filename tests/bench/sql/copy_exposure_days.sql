-- What one day is like, so are the others: built once, copied with another date.
INSERT INTO exposure_days_rows
SELECT * REPLACE (day + {shift:Int32} AS day)
FROM exposure_days_rows
WHERE exposure_days_rows.day = {day:Date}
