-- Lines before and after a line that evidence names: `source` is as evidence says it, with or without the node.
SELECT node, source, line_no, offset, ObservedTimestamp AS observed_at, Body AS body
FROM raw_lines
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND (source = {source:String} OR concat(node, '/', source) = {source:String})
    AND if({line_no:UInt64} != 0, ifNull(line_no, 0), offset) BETWEEN
        {place:UInt64} - least({place:UInt64}, {lines:UInt64}) AND {place:UInt64} + {lines:UInt64}
ORDER BY node, source, generation, offset
LIMIT 10000
