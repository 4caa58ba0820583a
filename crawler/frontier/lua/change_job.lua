#!lua flags=allow-oom
-- change_job: store a job as one step changed it, with its history and the runs that start and end, if it is still as it was
-- read. So no nominal time is decided twice. The owner names its fence; people have none: they start no run, and only change
-- the records of runs that are active. A repeat of the
-- same call, as after a lost reply, has the same nonce: nothing is changed again.
-- A new job begins above the revisions of all that were removed from here, so no run ever has the id of an earlier one.
-- KEYS  meta
-- ARGV  session ('' for people), epoch, now (ms), msgpack JobChange
-- returns {'FENCED'} | {'CHANGED'} | {'OK'}
--@call
local one = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local job, nonce, definition = one[JobChange.job], one[JobChange.nonce], one[JobChange.definition]
if ARGV[FenceArgs.session] ~= '' then
  if not fence(ARGV) then return {'FENCED'} end
else
  for i = 1, #one[JobChange.starts], 2 do
    if call('HEXISTS', ctx.prefix .. 'runs', one[JobChange.starts][i]) == 0 then return {'FENCED'} end
  end
end
local jobs, due, removed = ctx.prefix .. 'jobs', ctx.prefix .. 'jobdue', ctx.prefix .. 'removed'
local ledger, failed = ctx.prefix .. 'ledger:' .. job, ctx.prefix .. 'failed:' .. job
local stored = call('HGET', jobs, job)
local seen = stored and string.match(stored, '^(%S+) ') or ''
local function is_above() return one[JobChange.revision] > tonumber(call('GET', removed) or 0) end
if definition ~= '' and seen == nonce then return {'OK'} end
if definition == '' and seen == '' and one[JobChange.seen] ~= '' and not is_above() then return {'OK'} end
if seen ~= one[JobChange.seen] then return {'CHANGED'} end
if seen == '' and definition ~= '' and not is_above() then return {'CHANGED'} end

local function put(key, rows, most)
  for i = 1, #rows, 2 do
    call('ZREMRANGEBYSCORE', key, rows[i], rows[i])
    call('ZADD', key, rows[i], rows[i + 1])
  end
  if #rows > 0 then call('ZREMRANGEBYRANK', key, 0, -most - 1) end
end

for _, run in ipairs(one[JobChange.ends]) do
  call('HDEL', ctx.prefix .. 'runs', run)
  call('SADD', ctx.prefix .. 'closing', run)
end
if definition == '' then
  if is_above() then call('SET', removed, one[JobChange.revision]) end
  call('HDEL', jobs, job)
  call('ZREM', due, job)
  call('UNLINK', ledger, failed, ctx.prefix .. 'revisions:' .. job)
  for _, key in ipairs(one[JobChange.seed_keys]) do call('UNLINK', key) end
  return {'OK'}
end
put(ledger, one[JobChange.put], one[JobChange.rows_max])
for _, place in ipairs(one[JobChange.settled]) do call('ZREMRANGEBYSCORE', failed, place, place) end
put(failed, one[JobChange.failed], one[JobChange.failed_max])
run_many(one[JobChange.starts], 'HSET', ctx.prefix .. 'runs')
run_many(one[JobChange.revisions], 'HSET', ctx.prefix .. 'revisions:' .. job)
call('HSET', jobs, job, nonce .. ' ' .. definition)
if one[JobChange.due_ms] < 0 then call('ZREM', due, job) else call('ZADD', due, one[JobChange.due_ms], job) end
return {'OK'}
