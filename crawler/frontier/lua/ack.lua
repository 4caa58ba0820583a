#!lua flags=allow-oom
-- ack: commit fetched URLs of a partition. Needs the fence, and for each URL its delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), run, default delay (ms), 1 when the crawl has a limit of depth, msgpack of what is taken in
--       (see _add.lua), then for each URL a msgpack list: fingerprint, token, 'fingerprint:visit', queue, next fetch (ms),
--       delay (ms), status class ('s2'), bytes, fetch (ms), entry, seed, how many values are further counters,
--       those ('refused:REASON', how many, ...), and the values of the out-links of this partition (see _add.lua)
-- returns {'FENCED'} | {'OK', woken queues, then for each URL 'GONE' | 'YOURS sequence' | 'COMMITTED sequence digits'}
local REFUSED = 13 -- the first value behind those that each URL has
local function items_of(a) return REFUSED + a[12] end

local function book(a, budgets)
  local r, class, bytes = record_of(a[4]), a[7], a[8]
  local more = r[MORE]
  count(total, class, 1)
  count(total, 'bytes', bytes)
  count_in(r, class, 1)
  r[BYTES], r[FETCH_MS], r.has_pages = r[BYTES] + bytes, r[FETCH_MS] + a[9], true
  for i = REFUSED, items_of(a) - 1, 2 do
    local reason, n = a[i], a[i + 1]
    total[reason], more[reason] = (total[reason] or 0) + n, (more[reason] or 0) + n
  end
  count_seed(a[11], DONE, 1)
  settle(r, 1, a[5], a[6])
  if budgets[3] > 0 then look_again(a[4]) end
end

--@call
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local run, default_delay, is_limited, budgets = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1', cmsgpack.unpack(ARGV[7])
local commits, tokens, queues, n = {}, {}, {}, #ARGV - 7
for i = 1, n do
  local a = list_of(ARGV[i + 7])
  commits[i], tokens[i], queues[i] = a, a[2], a[4]
end
local claimed = call('ZMSCORE', P .. 'x', unpack(tokens))
read_queues(queues)
local known = call('HMGET', M, 'sequence', 'top_min')
local sequence = tonumber(known[1] or nil) or 0
local answers, log, ended, is_ended, fingerprints = {'OK', 0}, {}, {}, {}, {}
for i = 1, n do
  local a, token = commits[i], tokens[i]
  local key = a[3]
  if claimed[i] and not is_ended[token] and is_of_epoch(token, ARGV[2]) then
    local digits = a[items_of(a)] and add_items(a, items_of(a), run, default_delay, is_limited, budgets) or ''
    sequence = sequence + 1
    local text = text_of(sequence)
    push(log, key, token .. ' ' .. text .. ' ' .. a[10])
    ended[#ended + 1], fingerprints[#fingerprints + 1], is_ended[token] = token, a[1], true
    book(a, budgets)
    answers[i + 2] = 'COMMITTED ' .. text .. ' ' .. digits
  else
    local entry = call('HGET', P .. 'l', key)
    local is_mine = entry and string.sub(entry, 1, #token + 1) == token .. ' '
    answers[i + 2] = is_mine and 'YOURS ' .. string.match(entry, '^%S+ (%d+) ') or 'GONE'
  end
end
if #ended > 0 then
  run_many(log, 'HSET', P .. 'l')
  end_claims(ended)
  forget(run, fingerprints, is_limited)
  count(total, 'done', #ended)
  count(total, 'sequence', #ended)
  enter_all(default_delay, budgets)
  rank_queues(known[2])
  answers[2] = close_queues()
  write_added(run)
  write_seeds()
end
return answers
