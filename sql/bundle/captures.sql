-- What captures of some nodes said around a time: the line that tells of each, and its text.
SELECT reporter, Body AS body
FROM raw_lines
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND (empty({nodes:Array(String)}) OR has({nodes:Array(String)}, reporter)) AND source = 'capture'
    AND day BETWEEN toDate({since:DateTime64(9, 'UTC')}) AND toDate({until:DateTime64(9, 'UTC')})
    AND ObservedTimestamp BETWEEN {since:DateTime64(9, 'UTC')} AND {until:DateTime64(9, 'UTC')}
ORDER BY reporter, generation, offset
LIMIT {limit:UInt32}
