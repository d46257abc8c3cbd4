-- question: Which lines stand around a line of a source? Timestamp is the transport's time, else when the line was
-- question: read; a replayed line has none.
-- param node:String | the node the source speaks about
-- param source:String | the source, as evidence names it
-- param line_no:UInt64 = 0 | the line's number; 0: use the offset
-- param offset:UInt64 = 0 | the sequence number of a kernel record
-- param lines:UInt32 = 10 | how many before and after
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query raw_lines_around --param node=gpu-017 --param source=kern.log --param line_no=214
WITH
    {line_no:UInt64} != 0 AS numbered,
    if(numbered, {line_no:UInt64}, {offset:UInt64}) AS centre,
    if(numbered, ifNull(line_no, 0), offset) AS place
SELECT
    place = centre AS here, line_no, offset, nullIf(raw_lines.Timestamp, toDateTime64(0, 9, 'UTC')) AS Timestamp,
    SeverityText, truncated, Body, generation, run, run_id
FROM raw_lines
WHERE node = {node:String} AND source = {source:String}
    AND ({run:String} = '' OR run = {run:String})
    AND place BETWEEN centre - least(centre, {lines:UInt32}) AND centre + {lines:UInt32}
ORDER BY run, run_id, generation, offset
LIMIT 10000
