#!lua flags=allow-oom
-- ack: commit fetched URLs of a partition, all of one run. Needs the fence, and for each URL its delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  AckArgs, then for each URL a msgpack list: an AckItem, its further counters ('refused:REASON', how many, ...), and a
--       UrlItem for each out-link of this partition (see _add.lua)
-- returns {'FENCED'} | {'OK', woken queues, then for each URL 'GONE' | 'YOURS sequence' | 'COMMITTED sequence digits'}
local function items_of(one) return AckItem.size + 1 + one[AckItem.counts_size] end

local function book_run(one)
  local items = 0
  for i = AckItem.size + 1, items_of(one) - 1, 2 do
    if one[i] == 'items' then items = one[i + 1] end
    if one[i] == 'unchanged' then count_seed(one[AckItem.seed], RunCounts.unchanged, one[i + 1]) end
    if one[i] == 'named' then count_seed(one[AckItem.seed], RunCounts.named, one[i + 1]) end
  end
  count_page(record_of(one[AckItem.queue]), one[AckItem.seed], tonumber(string.sub(one[AckItem.status_class], 2)), one[AckItem.bytes], items)
end

local function book(one)
  local r, class, bytes = record_of(one[AckItem.queue]), one[AckItem.status_class], one[AckItem.bytes]
  local more = r[MORE]
  count(ctx.total, class, 1)
  count_in(r, class, 1)
  if class == 's9' then
    Requisites.count_bytes(r, Requisites.CLASS, bytes)
  else
    count(ctx.total, 'bytes', bytes)
    r[BYTES], r[FETCH_MS], r.has_pages = r[BYTES] + bytes, r[FETCH_MS] + one[AckItem.fetch_ms], true
  end
  for i = AckItem.size + 1, items_of(one) - 1, 2 do
    local reason, n = one[i], one[i + 1]
    ctx.total[reason] = (ctx.total[reason] or 0) + n
    if string.sub(reason, 1, 8) ~= 'handled:' then more[reason] = (more[reason] or 0) + n end
    Losses.of_page(reason, one[AckItem.entry])
  end
  leave(State.CLAIMED, r)
  enter(State.COMMITTED, r, {seed = one[AckItem.seed]})
  if type(one[AckItem.seed]) == 'string' then book_run(one) end
  note_answered(r)
  settle(r, one[AckItem.next_fetch_ms], one[AckItem.delay_ms])
end

--@call
if not fence(ARGV) then return {'FENCED'} end
local run, default_delay, is_limited = ARGV[AckArgs.run], tonumber(ARGV[AckArgs.default_delay_ms]), ARGV[AckArgs.is_limited] == '1'
ctx.user = ARGV[AckArgs.user]
local budget, commits, tokens, queues, n = cmsgpack.unpack(ARGV[AckArgs.budget]), {}, {}, {}, #ARGV - AckArgs.size
for i = 1, n do
  local one = list_of(ARGV[AckArgs.size + i])
  commits[i], tokens[i], queues[i] = one, one[AckItem.token], one[AckItem.queue]
end
local claimed = call('ZMSCORE', ctx.prefix .. 'x', unpack(tokens))
read_queues(queues)
local known = call('HMGET', ctx.meta_key, 'sequence', 'top_min')
local sequence = tonumber(known[1] or nil) or 0
local answers, log, ended, is_ended, fingerprints = {'OK', 0}, {}, {}, {}, {}
for i = 1, n do
  local one, token = commits[i], tokens[i]
  local key = one[AckItem.log_key]
  if claimed[i] and not is_ended[token] and is_of_epoch(token, ARGV[AckArgs.epoch]) then
    local digits = one[items_of(one)] and add_items(one, items_of(one), run, default_delay, is_limited, budget) or ''
    sequence = sequence + 1
    local text = text_of(sequence)
    push(log, key, token .. ' ' .. text .. ' ' .. one[AckItem.entry])
    ended[#ended + 1], fingerprints[#fingerprints + 1], is_ended[token] = token, one[AckItem.fingerprint], true
    book(one)
    answers[i + 2] = 'COMMITTED ' .. text .. ' ' .. digits
  else
    local entry = call('HGET', ctx.prefix .. 'l', key)
    local is_mine = entry and string.sub(entry, 1, #token + 1) == token .. ' '
    answers[i + 2] = is_mine and 'YOURS ' .. string.match(entry, '^%S+ (%d+) ') or 'GONE'
  end
end
if #ended > 0 then
  run_many(log, 'HSET', ctx.prefix .. 'l')
  run_many(ended, 'HDEL', ctx.prefix .. 'u')
  run_many(ended, 'ZREM', ctx.prefix .. 'x')
  forget(run, fingerprints, is_limited)
  count(ctx.total, 'sequence', #ended)
  enter_all(default_delay, budget)
  ctx.top_min = tonumber(known[2] or nil) or -1
  answers[2] = close_call()
end
return answers
