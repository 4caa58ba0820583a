#!lua flags=allow-oom
-- change_job: store a job as one step changed it, with its history and the runs that start and end, if it is still as it was
-- read. So no nominal time is decided twice. The owner names its fence; people, who start no run, have none.
-- jobs: hash id of a job -> 'nonce definition'; jobdue: zset of jobs by when there is something to decide (wall ms);
-- ledger:<job>: zset of rows by nominal time (s); revisions:<job>: hash number -> definition; seeds:<job>:<revision>: list of
-- blocks of seeds; runs: hash of active runs -> record; closing: set of ended runs that may have URLs or counts somewhere;
-- failed: zset of runs that used up their attempts, by when.
-- KEYS  meta
-- ARGV  session ('' for people), epoch, now (ms), msgpack JobChange
-- returns {'FENCED'} | {'CHANGED'} | {'OK'}
--@call
local one = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local job, nonce, definition = one[JobChange.job], one[JobChange.nonce], one[JobChange.definition]
if ARGV[FenceArgs.session] ~= '' then
  if not fence(ARGV) then return {'FENCED'} end
elseif #one[JobChange.starts] > 0 then
  return {'FENCED'}
end
local jobs, due, ledger = ctx.prefix .. 'jobs', ctx.prefix .. 'jobdue', ctx.prefix .. 'ledger:' .. job
local stored = call('HGET', jobs, job)
local seen = stored and string.match(stored, '^(%S+) ') or ''
if seen ~= one[JobChange.seen] then return {'CHANGED'} end
for _, run in ipairs(one[JobChange.ends]) do
  call('HDEL', ctx.prefix .. 'runs', run)
  call('SADD', ctx.prefix .. 'closing', run)
end
if definition == '' then
  call('HDEL', jobs, job)
  call('ZREM', due, job)
  call('UNLINK', ledger, ctx.prefix .. 'revisions:' .. job)
  for _, key in ipairs(one[JobChange.seed_keys]) do call('UNLINK', key) end
  return {'OK'}
end
run_many(one[JobChange.drop], 'ZREM', ledger)
run_many(one[JobChange.put], 'ZADD', ledger)
if #one[JobChange.put] > 0 then call('ZREMRANGEBYRANK', ledger, 0, -one[JobChange.rows_max] - 1) end
run_many(one[JobChange.starts], 'HSET', ctx.prefix .. 'runs')
run_many(one[JobChange.failed], 'ZADD', ctx.prefix .. 'failed')
if #one[JobChange.failed] > 0 then call('ZREMRANGEBYRANK', ctx.prefix .. 'failed', 0, -one[JobChange.rows_max] - 1) end
run_many(one[JobChange.revisions], 'HSET', ctx.prefix .. 'revisions:' .. job)
call('HSET', jobs, job, nonce .. ' ' .. definition)
if one[JobChange.due_ms] < 0 then call('ZREM', due, job) else call('ZADD', due, one[JobChange.due_ms], job) end
return {'OK'}
