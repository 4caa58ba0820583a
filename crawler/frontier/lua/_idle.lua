-- Idle queues: without URLs, claims, retries or guests. Their records are packed after a while: IDLE_MS after their clock
-- has run out, so that nothing is forgotten but zeros. idle: zset queue -> when its clock runs out (ms).
-- A packed record is 'urls s2 bytes fetch_ms', then 'name=value' for whatever else is not zero.
local IDLE_MS = 60000
local PACKED = {'urls', 's2', 'bytes', 'fetch_ms'}
local LEFT_OUT = {urls = true, s2 = true, bytes = true, fetch_ms = true, next = true, blocks = true}

local function pack_queue(queue)
  local found, words, rest = call('HGETALL', P .. 'w:' .. queue), {}, {}
  local value = {}
  for i = 1, #found, 2 do value[found[i]] = found[i + 1] end
  for i, name in ipairs(PACKED) do words[i] = value[name] or '0' end
  for name, v in pairs(value) do
    if not LEFT_OUT[name] and v ~= '0' or name == 'delay' then rest[#rest + 1] = name .. '=' .. v end
  end
  table.sort(rest)
  for _, word in ipairs(rest) do words[#words + 1] = word end
  return table.concat(words, ' ')
end

-- {name, value, name, value, ...}
local function unpack_queue(packed)
  local flat, i = {}, 0
  for word in string.gmatch(packed, '%S+') do
    i = i + 1
    local name, value = string.match(word, '^(.-)=(.*)$')
    if not name then name, value = PACKED[i], word end
    flat[#flat + 1], flat[#flat + 2] = name, value
  end
  return flat
end
