-- From when to when raw lines of live runs are kept, as far as their day is known.
SELECT min(day), max(day), count()
FROM raw_lines_rows
WHERE run = 'live' AND day > toDate('1970-01-01') AND ({cluster:String} = '' OR cluster = {cluster:String})
