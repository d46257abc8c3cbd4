-- question: What happened on a node around a moment?
-- param node:String | the node's name
-- param at:String | the moment, such as 2026-03-01T10:05:42Z
-- param minutes:UInt32 = 5 | how far to look, both ways
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query node_around --param node=gpu-017 --param at=2026-03-01T10:05:42Z
WITH parseDateTime64BestEffort({at:String}, 9, 'UTC') AS moment
SELECT
    ifNull(aligned_time, lo_time) AS at, quality, name, severity, role, label, subject_rank AS rank,
    subject_pci_bus_id AS pci_bus_id, count, source, line_no, body
FROM events
WHERE node = {node:String}
    AND ({run:String} = '' OR run = {run:String})
    AND ifNull(aligned_time, lo_time)
        BETWEEN moment - toIntervalMinute({minutes:UInt32}) AND moment + toIntervalMinute({minutes:UInt32})
ORDER BY at, source, offset
LIMIT 1000
