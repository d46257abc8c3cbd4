-- The lines of a reporter on a day, in the order in which its shippers read them.
SELECT
    shipper_id, batch_seq, boot_id, machine_id, seq, source, generation, offset, line_no, truncated, kernel_time_ns,
    toUnixTimestamp64Nano(Timestamp) AS time_ns, toUnixTimestamp64Nano(ObservedTimestamp) AS observed_ns, Body,
    ResourceAttributes, LogAttributes, bitShiftRight(version, 20) AS arrived_ms
FROM raw_lines_rows FINAL
WHERE run = 'live' AND day = {day:Date} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND reporter = {reporter:String}
ORDER BY min(version) OVER (PARTITION BY shipper_id), shipper_id, batch_seq, seq
SETTINGS do_not_merge_across_partitions_select_final = 1
