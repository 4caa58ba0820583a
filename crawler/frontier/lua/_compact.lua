-- Compact stores: very many small values by name, in hashes small enough for the engine's packed encoding: <kind>:<bucket>,
-- and <kind>:split while one splits (see _buckets.lua). meta's <kind>n and <kind>b count values and buckets.
-- Kinds: h, the records of idle queues; y, robots.txt by origin; n, admitted hosts; e, counts of seeds.
local compact_get, compact_drop, compact_put, compact_neighbours
do
  local PER_STORE = 64
  local COMPACT_MOVES = {y = 4} -- values moved for each new value: a robots.txt may have half a megabyte
  local COMPACT_MOVES_MAX = 256

  -- The buckets of a kind and the number of their values.
  local function compact_of(kind)
    if not ctx.stores[kind] then
      local v = call('HMGET', ctx.meta_key, kind .. 'n', kind .. 'b', 'split' .. kind)
      local store = buckets_named(kind, kind .. 'b', v[2], v[3])
      store.size, store.prefix = tonumber(v[1] or nil) or 0, ctx.prefix .. kind .. ':'
      ctx.stores[kind] = store
    end
    return ctx.stores[kind]
  end

  local function compact_index(store, name) return bucket_at(number_of(name), store.n, store.low) end

  function compact_get(kind, name)
    local store = compact_of(kind)
    if store.size == 0 then return nil end
    local index = compact_index(store, name)
    local value = call('HGET', store.prefix .. index, name)
    if not value and is_moving(store, index) then value = call('HGET', store.prefix .. 'split', name) end
    return value or nil
  end

  function compact_drop(kind, name)
    local store = compact_of(kind)
    local index = compact_index(store, name)
    local dropped = call('HDEL', store.prefix .. index, name)
    if is_moving(store, index) then dropped = dropped + call('HDEL', store.prefix .. 'split', name) end
    if dropped > 0 then store.size = call('HINCRBY', ctx.meta_key, kind .. 'n', -dropped) end
  end

  local function compact_grow(kind, store)
    if not store.is_splitting and store.size <= PER_STORE * store.n then return end
    local most = math.min(ctx.moves_left, COMPACT_MOVES[kind] or COMPACT_MOVES_MAX)
    if most <= 0 then return end
    if not store.is_splitting then begin_split(store, {store.prefix}) end
    local function index_of(name) return compact_index(store, name) end
    if move_some(store, store.prefix, most, index_of, 'HRANDFIELD', 'WITHVALUES', 'HSET', 'HDEL') then end_split(store) end
  end

  function compact_put(kind, name, value)
    local store = compact_of(kind)
    local index = compact_index(store, name)
    local n = call('HSET', store.prefix .. index, name, value)
    if is_moving(store, index) then n = n - call('HDEL', store.prefix .. 'split', name) end
    if n ~= 0 then store.size = call('HINCRBY', ctx.meta_key, kind .. 'n', n) end
    compact_grow(kind, store)
  end

  -- n random values, with their names, from the bucket of a name.
  function compact_neighbours(kind, name, n)
    local store = compact_of(kind)
    return call('HRANDFIELD', store.prefix .. compact_index(store, name), n, 'WITHVALUES')
  end
end
