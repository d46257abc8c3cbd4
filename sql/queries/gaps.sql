-- question: What was lost or could not be read, where and why?
-- param run:String = live | live, replay or drill; empty: all
-- param node:String = | only this node
-- param limit:UInt32 = 100 | how many
-- example: rootrank query gaps --param node=gpu-017
SELECT reported_at, cluster, node, reporter, source, reason, lost_lines, lost_bytes, from_offset, to_offset, run, run_id
FROM gaps
WHERE ({run:String} = '' OR run = {run:String}) AND ({node:String} = '' OR node = {node:String})
ORDER BY reported_at DESC, node, source
LIMIT {limit:UInt32}
