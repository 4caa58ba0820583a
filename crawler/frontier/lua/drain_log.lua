#!lua flags=allow-oom
-- drain_log: delete commit entries that are in an index segment on disk, and note what happened in the busiest queues lately.
-- Needs the fence. Deleting is idempotent; activity counts again when it is sent again.
-- KEYS  meta
-- ARGV  DrainArgs, then the entries' keys 'fingerprint:visit'. Activity is '' or a msgpack list: ActivityHead, then for each
--       queue and slot an ActivityItem, older slots first
-- returns {'FENCED'} | {'COMMITTED', number of deleted entries}
-- busy: hash of the busiest queues -> msgpack {weight: requests, those of HALF_LIFE_S ago count half; when (s); the first slot
-- of each ring; open requests; the last failure's reason and its slot's time (s); then the newest slots, newest first: number, pages, bytes, client errors, server errors, failures}.
-- v:<queue>, d:<queue>: rings of slots of a queue in `busy`, as struct.pack writes them. They begin with the queue's first
-- slot, so that they grow with the time for which it is busy. What is too much for a number stays at its largest value.
local HALF_LIFE_S = 300
local SLOTS_OF_COARSE = 60 -- fine slots in a coarse one
local FEW, LOOK_EVERY = 3, 12
local HEAD, WIDTH, NEWEST = 7, 6, 4
local WEIGHT, AT, FINE_FIRST, COARSE_FIRST, IN_FLIGHT, ERROR, ERROR_AT = 1, 2, 3, 4, 5, 6, 7
local FINE = {name = 'v:', slots = 180, size = 17, form = '<I4I2I5I2I2I2', most = {65535, 2 ^ 40 - 1, 65535, 65535, 65535}}
local COARSE = {
  name = 'd:', slots = 288, size = 22, form = '<I4I3I6I3I3I3', most = {2 ^ 24 - 1, 2 ^ 48 - 1, 2 ^ 24 - 1, 2 ^ 24 - 1, 2 ^ 24 - 1},
}

local function weight_at(one, at) return one[WEIGHT] * 2 ^ (-math.max(0, at - one[AT]) / HALF_LIFE_S) end

-- Add counts to one slot of a ring.
local function add_to_ring(ring, queue, first, slot, counts)
  local key, place = ctx.prefix .. ring.name .. queue, (slot - first) % ring.slots * ring.size
  local old = call('GETRANGE', key, place, place + ring.size - 1)
  local known = #old == ring.size and {struct.unpack(ring.form, old)} or {-1}
  local sums = {}
  for i = 1, WIDTH - 1 do
    sums[i] = math.min(ring.most[i], counts[i] + (known[1] == slot and known[i + 1] or 0))
  end
  call('SETRANGE', key, place, struct.pack(ring.form, slot, unpack(sums)))
end

-- Add counts to a slot among the newest ones.
local function add_to_newest(one, slot, counts)
  local at = HEAD + 1
  while one[at] and one[at] > slot do at = at + WIDTH end
  if one[at] ~= slot then
    for i = WIDTH, 1, -1 do table.insert(one, at, i == 1 and slot or 0) end
    for i = #one, HEAD + NEWEST * WIDTH + 1, -1 do one[i] = nil end
  end
  if not one[at] then return end
  for i = 1, WIDTH - 1 do one[at + i] = one[at + i] + counts[i] end
end

-- A place among the busiest for a queue with so many requests in so many seconds, if there is one: free, or of one with less
-- than half. Where there is none free, a look at all of them costs; queues with few requests get one in one slot of a minute.
local function admit(most, requests, seconds, slot, at)
  local new = {0, at, slot, math.floor(slot / SLOTS_OF_COARSE), 0, '', 0}
  if call('HLEN', ctx.prefix .. 'busy') < most then return new end
  if requests < FEW and slot % LOOK_EVERY ~= 0 then return nil end
  local all, least, weight = call('HGETALL', ctx.prefix .. 'busy'), nil, math.huge
  for i = 1, #all, 2 do
    local now = weight_at(list_of(all[i + 1]), at)
    if now < weight then least, weight = all[i], now end
  end
  if not least or requests / seconds <= 2 * weight * math.log(2) / HALF_LIFE_S then return nil end
  call('HDEL', ctx.prefix .. 'busy', least)
  call('DEL', ctx.prefix .. FINE.name .. least, ctx.prefix .. COARSE.name .. least)
  return new
end

local function note_activity(values)
  for i = ActivityHead.size, #values - 1, ActivityItem.size do
    local slot, queue = values[i + ActivityItem.slot], values[i + ActivityItem.queue]
    local counts, at = {}, values[i + ActivityItem.slot] * values[ActivityHead.slot_s]
    local happened = 0
    for n = 1, WIDTH - 1 do
      counts[n] = values[i + ActivityItem.queue + n]
      happened = happened + counts[n]
    end
    local requests, error = counts[1] + counts[5], values[i + ActivityItem.error]
    local packed = call('HGET', ctx.prefix .. 'busy', queue)
    local one = packed and list_of(packed)
      or admit(values[ActivityHead.most], requests, values[ActivityHead.seconds], slot, at)
    if one then
      one[IN_FLIGHT] = values[i + ActivityItem.in_flight]
      if error ~= '' then one[ERROR], one[ERROR_AT] = error, at end
      one[WEIGHT], one[AT] = weight_at(one, at) + requests, math.max(at, one[AT])
      if happened > 0 then add_to_newest(one, slot, counts) end
      call('HSET', ctx.prefix .. 'busy', queue, cmsgpack.pack(one))
    end
    if one and happened > 0 then
      add_to_ring(FINE, queue, one[FINE_FIRST], slot, counts)
      add_to_ring(COARSE, queue, one[COARSE_FIRST], math.floor(slot / SLOTS_OF_COARSE), counts)
    end
  end
end

--@call
if not fence(ARGV) then return {'FENCED'} end
if ARGV[DrainArgs.activity] ~= '' then note_activity(list_of(ARGV[DrainArgs.activity])) end
local keys = {}
for i = DrainArgs.size + 1, #ARGV do keys[i - DrainArgs.size] = ARGV[i] end
return {'COMMITTED', run_many(keys, 'HDEL', ctx.prefix .. 'l')}
