#!lua flags=allow-oom
-- close_run: forget a run that has ended: its seen-set, the depths of its URLs and its counts. First it is noted as closed, so
-- that nobody adds to it any more; the note is kept for a while, for adds that were long on their way. Without a fence.
-- Idempotent, and to be repeated while there is more. Its URLs that still wait end like others.
-- meta's dropped: members of seen-sets that were deleted so, because 'added' counts them.
-- KEYS  meta
-- ARGV  RunArgs
-- returns 1 when there is more to delete, else 0
local BUCKETS_MAX = 50 -- a call
local KEPT_MS, NOTES_MAX = 600000, 100

local run, closed, dropped = ARGV[RunArgs.run], ctx.prefix .. 'closed', 0
call('ZADD', closed, meta().clock, run)
local old = call('ZRANGEBYSCORE', closed, '-inf', '(' .. meta().clock - KEPT_MS, 'LIMIT', 0, NOTES_MAX)
run_many(old, 'ZREM', closed)

local seen = seen_set(run)
local n = seen.n

local function drop(bucket)
  dropped = dropped + call('SCARD', seen.members .. bucket)
  call('DEL', seen.members .. bucket, seen.depths .. bucket)
end

if seen.is_splitting then drop('split') end
for _ = 1, math.min(n, BUCKETS_MAX) do
  n = n - 1
  drop(n)
end
call('HDEL', ctx.meta_key, seen.split)
if n > 0 then
  call('HSET', ctx.meta_key, seen.field, n)
  count(ctx.total, 'seen' .. run, -dropped)
else
  call('HDEL', ctx.meta_key, seen.field, 'seen' .. run)
  if meta().hash_key then compact_drop('e', run) end -- without it, nothing was ever added to this partition
end
if dropped > 0 then count(ctx.total, 'dropped', dropped) end
write_totals()
return n > 0 and 1 or 0
