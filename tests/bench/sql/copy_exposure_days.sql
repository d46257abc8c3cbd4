-- What one day is like, so are others: built once, copied with other dates.
INSERT INTO exposure_days_rows
SELECT built.* REPLACE (built.day + shift AS day)
FROM (SELECT * FROM exposure_days_rows WHERE day = {day:Date}) AS built
ARRAY JOIN range({first:UInt32}, {end:UInt32}) AS shift
SETTINGS min_insert_block_size_rows = 10000000, min_insert_block_size_bytes = 4000000000
