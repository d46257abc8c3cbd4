-- The UUID of a GPU by its number.
SELECT concat('GPU-', lower(hex(sipHash64(toUInt64({gpu:UInt64}), 'uuid'))))
