#!lua flags=allow-oom
-- raise_sequence: the next commits of a partition get numbers above this one, which a commit had that the engine has lost, or
-- that a rebuild has read. Without a fence.
-- KEYS  meta
-- ARGV  the number
-- returns {'COMMITTED'}
if tonumber(ARGV[1]) > (tonumber(call('HGET', ctx.meta_key, 'sequence') or nil) or 0) then
  call('HSET', ctx.meta_key, 'sequence', ARGV[1])
end
return {'COMMITTED'}
