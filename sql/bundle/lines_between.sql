-- All lines of some nodes in a time, in the order in which they were read. The text of captures is asked for by itself.
SELECT node, source, line_no, offset, ObservedTimestamp AS observed_at, Body AS body
FROM raw_lines
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND has({nodes:Array(String)}, reporter) AND source != 'capture'
    AND day BETWEEN toDate({since:DateTime64(9, 'UTC')}) AND toDate({until:DateTime64(9, 'UTC')})
    AND ObservedTimestamp BETWEEN {since:DateTime64(9, 'UTC')} AND {until:DateTime64(9, 'UTC')}
ORDER BY node, source, generation, offset
LIMIT {limit:UInt32}
