-- The names of all queues of the partition, in the order of their bytes: blocks of at most NAMES_MAX, sorted sets that are
-- small enough for the engine's packed encoding. names: has the first block, names:FIRST each further one, and the zset
-- names lists these by their first name. All scores are 0. Names are never removed.
-- Only the engine compares names: Lua would compare them by the locale of the engine's process.
local function blocks_key() return ctx.prefix .. 'names' end
local function names_key(first) return ctx.prefix .. 'names:' .. first end

-- The first name of the block that a name belongs in; '' for the first block.
local function names_from(name) return call('ZREVRANGEBYLEX', blocks_key(), '[' .. name, '-', 'LIMIT', 0, 1)[1] or '' end

local list_name
do
  local NAMES_MAX = 128 -- the engine's zset-max-listpack-entries

  -- Move the second half of a full block to a new one. The first half is stored again, too: an allocator may leave a value that
  -- shrinks to a half in place.
  local function split_names(block)
    local middle = call('ZRANGE', block, NAMES_MAX / 2, NAMES_MAX / 2)[1]
    call('ZRANGESTORE', names_key(middle), block, NAMES_MAX / 2, NAMES_MAX - 1)
    call('ZADD', blocks_key(), 0, middle)
    call('ZRANGESTORE', block, block, 0, NAMES_MAX / 2 - 1)
  end

  function list_name(name)
    local block = names_key(names_from(name))
    if call('ZCARD', block) >= NAMES_MAX then
      split_names(block)
      block = names_key(names_from(name))
    end
    call('ZADD', block, 0, name)
  end
end
