-- The partition's prefix, its clock, its fence and its totals. Shared by all scripts of a partition.
-- KEYS[1] is the partition's meta hash '{crawl:partition}:m'; every other key is built from its prefix, so that all
-- keys of a script are in one slot.
local MOVES_MAX = 1000 -- values that one call moves to other buckets (see _buckets.lua)
local call, ctx

-- What one call keeps while it lasts: the functions of the library stay loaded from one call to the next.
local function new_call(KEYS)
  local prefix = string.sub(KEYS[1], 1, -2)
  call = redis.call
  ctx = {
    meta_key = KEYS[1],
    prefix = prefix,
    ready_key = prefix .. 'ready', -- zset of queues by the time when they are due
    meta = nil, -- what most scripts need of the meta hash, once it is read
    total = {}, -- changes of the partition's totals, by name; written once, at the end
    records = {}, -- queue -> its record, once it is read
    stores = {}, -- kind -> compact store, once it is looked at
    moves_left = MOVES_MAX,
    seen_sets = {}, -- run -> seen-set, once it is looked at
    taken_labels = {}, -- 'domain label' -> true, of hosts that are known to be admitted
    seeds = {}, -- number of a seed, or id of a run -> changes of its counts
    has_runs = true, -- can URLs of runs be among those that enter queues?
    arrived = {}, -- queue -> {score, member, ...} of new URLs
    arrivals = {}, -- the names of those queues, in order
    requisites = {}, -- queue -> the same of new requisites
    domain_of = {}, -- queue -> domain
    user = '', -- whose URLs this call adds
    user_urls = {}, -- user -> by how many its URLs in queues change
    weights = {}, -- user -> weight; 1 for all others
    top_min = nil, -- see _stats.lua, once it is read
  }
end

local AT_ONCE = 1000 -- values that one command gets from a list of any length: they pass over Lua's stack, which holds 8,000

-- Run a command on a key with all values of a list, some at a time; the sum of the answers. An even number goes at once, so
-- that pairs stay together.
local function run_many(list, command, key, flag)
  local done, n = 0, #list
  for i = 1, n, AT_ONCE do
    local last = math.min(i + AT_ONCE - 1, n)
    if flag then
      done = done + call(command, key, flag, unpack(list, i, last))
    else
      done = done + call(command, key, unpack(list, i, last))
    end
  end
  return done
end

-- What of the meta hash most scripts need, read once: session, epoch, clock (ms), hold (ms or nil), engine, request,
-- spilled, boosts and users (see _queue.lua; nil and 0 when there are none), and the crawl's hash key as text.

local function meta()
  if not ctx.meta then
    local m = call('HMGET', ctx.meta_key, 'session', 'epoch', 'clock', 'hold', 'engine', 'request', 'spilled', 'boosts', 'hash_key', 'users')
    ctx.meta = {
      session = m[1] or '', epoch = m[2] or '0', clock = tonumber(m[3] or nil) or 0, hold = tonumber(m[4] or nil),
      engine = m[5], request = m[6], spilled = tonumber(m[7] or nil) or 0, boosts = m[8] or nil,
      hash_key = m[9], users = tonumber(m[10] or nil) or 0,
    }
  end
  return ctx.meta
end

-- Whoever may be the first at a partition leaves the crawl's hash key there: see number_of.
local function keep_hash_key(key)
  if call('HSETNX', ctx.meta_key, 'hash_key', key) == 1 and ctx.meta then ctx.meta.hash_key = key end
end

-- A number of 52 bits for a name that a site may choose. Nobody can find names with numbers alike who does not have the key.
local function number_of(name)
  local key = meta().hash_key or error('the partition has no hash key')
  return tonumber(string.sub(redis.sha1hex(key .. name), 1, 13), 16)
end

-- True when the caller holds the lease; then the partition clock is carried on to its time (never back).
local function fence(args)
  local lease, session, now_ms = meta(), args[FenceArgs.session], tonumber(args[FenceArgs.now_ms])
  if session == '' or lease.session ~= session or lease.epoch ~= args[FenceArgs.epoch] then return false end
  if now_ms > lease.clock then
    call('HSET', ctx.meta_key, 'clock', now_ms)
    lease.clock = now_ms
  end
  return true
end

local list_of, values_of
do
  local VALUES_MAX = 7000 -- of a list, for the reason of AT_ONCE

  -- The values of a msgpack list behind its header of so many bytes. A table of them all is made at once, where
  -- cmsgpack.unpack would let one grow value by value.
  function values_of(packed, header) return select(2, cmsgpack.unpack_limit(packed, VALUES_MAX, header)) end

  function list_of(packed)
    local kind, high = string.byte(packed, 1, 2)
    if kind < 0xdc then return {values_of(packed, 1)} end -- up to 15 values
    if kind == 0xdc and high * 256 < VALUES_MAX - 256 then return {values_of(packed, 3)} end -- two bytes say how many
    return cmsgpack.unpack(packed)
  end
end

-- Add to counters of a hash, given as {field = n, ...}; the new values, by field.
local function bump(key, changes)
  local names, flat, values = {}, {}, {}
  for name in pairs(changes) do names[#names + 1] = name end
  if #names == 0 then return values end
  local known = call('HMGET', key, unpack(names)) -- the program's own names: some dozens
  for i, name in ipairs(names) do
    values[name] = (tonumber(known[i] or nil) or 0) + changes[name]
    flat[2 * i - 1], flat[2 * i] = name, values[name]
  end
  call('HSET', key, unpack(flat))
  return values
end

-- The partition's totals: gathered while a script runs, written by it once, at its end.
local function count(of, name, n) of[name] = (of[name] or 0) + n end

-- The new values of those that changed, by name.
local function write_totals()
  local values = bump(ctx.meta_key, ctx.total)
  ctx.total = {}
  return values
end

-- Sleeping queues woke, got their first URLs of a user, or URLs were scheduled: the partition's owner is told, unless it did
-- this itself and looks at the answer.
local function hint(woken, channel_prefix, session)
  if woken == 0 and (ctx.total.scheduled or 0) <= 0 then return end
  local owner = meta().session
  if owner == '' or owner == session then return end
  call('PUBLISH', channel_prefix .. owner, ctx.user == '' and ctx.meta_key or ctx.meta_key .. ' ' .. ctx.user)
end
