#!lua flags=allow-oom
-- raise_sequence: the next commits of a partition get numbers above this one, which a commit had that the engine has lost, or
-- that a rebuild has read. Without a fence.
-- KEYS  meta
-- ARGV  SequenceArgs
-- returns {'COMMITTED'}
if tonumber(ARGV[SequenceArgs.number]) > (tonumber(call('HGET', ctx.meta_key, 'sequence') or nil) or 0) then
  call('HSET', ctx.meta_key, 'sequence', ARGV[SequenceArgs.number])
end
return {'COMMITTED'}
