-- The lines of one day: kernel logs of all nodes.
INSERT INTO raw_lines_rows
    (run, run_id, cluster, reporter, source, generation, offset, day, line_no, seq, batch_seq, shipper_id, boot_id,
    machine_id, node, truncated, kernel_time_ns, Timestamp, ObservedTimestamp, SeverityText, SeverityNumber, ServiceName,
    Body, ResourceAttributes, LogAttributes, version)
WITH
    number % intDiv({gpus:UInt64}, 8) AS place, concat('n', leftPad(toString(place), 6, '0')) AS host,
    intDiv(number, intDiv({gpus:UInt64}, 8)) AS nth,
    toUnixTimestamp({day:Date}, 'UTC') * 1000000000
        + toUInt64(nth * (86400000000000 / greatest(1, {a_day:UInt64} / intDiv({gpus:UInt64}, 8)))) AS at_ns,
    fromUnixTimestamp64Nano(toInt64(at_ns), 'UTC') AS at
SELECT
    'live', 'bench', concat('c', toString(intDiv(place * 32, {gpus:UInt64}))), host, 'kmsg', '1',
    toUnixTimestamp({day:Date}, 'UTC') + nth, {day:Date}, NULL, nth, nth, 's1', concat('b', toString(place)),
    concat('m', toString(place)), host, 0, at_ns, at, at, 'info', 9, 'kernel',
    concat('systemd[1]: Started session ', toString(sipHash64(number) % 100000), ' of user svc-',
        toString(sipHash64(number) % 97), ', memory peak ', toString(sipHash64(number, 1) % 100000), 'K'),
    map('kind', 'kernel'), map('kmsg.priority', '6'), number
FROM numbers({first:UInt64}, {rows:UInt64})
SETTINGS optimize_on_insert = 0, min_insert_block_size_rows = 4000000, min_insert_block_size_bytes = 4000000000
