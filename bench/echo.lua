-- wrk script: tools/call of echo, every answer checked against its own request.
-- Arguments after "--": the session id; without one, each request stands alone (2026-07-28).
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  bad, good, first_bad, number, open = 0, 0, "", 100000000, {}
  local before = '{"jsonrpc":"2.0","id":'
  local between = ',"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello '
  local after, era = '"}}}', nil
  if args[1] then
    era = "Mcp-Session-Id: " .. args[1] .. "\r\nMCP-Protocol-Version: 2025-11-25"
  else
    era = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo"
    after = '"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"'
      .. ',"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}'
      .. ',"io.modelcontextprotocol/clientCapabilities":{}}}}'
  end
  local head = "POST /mcp HTTP/1.1\r\nHost: " .. wrk.headers["Host"]
    .. "\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n" .. era
    .. "\r\nContent-Length: " .. (#before + 9 + #between + 9 + #after) .. "\r\n\r\n"
  request = function()
    number = number + 1
    open[number] = true
    return head .. before .. number .. between .. number .. after
  end
end

function response(status, headers, body)
  local id = tonumber(string.match(body, '"id":(%d+)'))
  if status == 200 and id and open[id] and string.find(body, '"text":"hello ' .. id .. '"', 1, true) then
    open[id] = nil
    good = good + 1
  else
    bad = bad + 1
    if first_bad == "" then first_bad = status .. " " .. string.sub(body, 1, 200) end
  end
end

function done(summary, latency, requests)
  local good, bad, first_bad = 0, 0, ""
  for _, thread in ipairs(threads) do
    good = good + thread:get("good")
    bad = bad + thread:get("bad")
    first_bad = first_bad .. thread:get("first_bad")
  end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"seconds":%.6f,"p50":%.1f,"p99":%.1f,"good":%d,"bad":%d,"errors":%d,"first_bad":"%s"}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), good, bad,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    string.gsub(first_bad, '[^%w %.:-]', "'")))
end
