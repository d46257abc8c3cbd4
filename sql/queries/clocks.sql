-- question: How far is each node's clock off, how sure is that, and when did its wall clock last jump? Worst first.
-- question: Offset: reference minus wall clock. Bound: certain. Drift above 0: the node's raw clock runs slow.
-- question: State: the quality, or silent where nothing was told of a live node for two minutes; then the rest is old.
-- param node:String = | only this node
-- param cluster:String = | only this cluster
-- param run:String = live | live, replay or drill; empty: all
-- param limit:UInt32 = 1000 | how many
-- example: rootrank query clocks --param node=gpu-017
SELECT
    cluster, node, if(run = 'live' AND age_s > 120, 'silent', quality) AS state, quality,
    toDecimal128(wall_offset_ns, 6) / 1000000 AS wall_offset_ms, toDecimal128(bound_ns, 6) / 1000000 AS bound_ms,
    toDecimal128(u99_ns, 6) / 1000000 AS u99_ms, toDecimal128(b_ppb, 3) / 1000 AS drift_ppm,
    reference_broker, epoch, toDecimal128(last_wall_step_ns, 6) / 1000000 AS last_wall_step_ms, last_wall_step_at,
    age_s, reason, run, run_id
FROM clocks
WHERE ({run:String} = '' OR run = {run:String}) AND ({node:String} = '' OR node = {node:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
ORDER BY
    indexOf(['none', 'silent', 'stepped', 'holdover', 'good'], state),
    indexOf(['none', 'stepped', 'holdover', 'good'], quality), bound_ns DESC, cluster, node
LIMIT {limit:UInt32}
