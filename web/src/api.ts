// Requests to the server of this page. All of them are relative to the page.

/** Why there is no answer. */
export class Failed extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** The reader's bearer token, where the server wants one. In memory only: gone with the page. */
let token = "";

export function signIn(with_: string): void {
  token = with_;
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token !== "") headers.set("authorization", `Bearer ${token}`);
  let response: Response;
  let text: string;
  try {
    response = await fetch(`api/${path}`, { ...init, headers, redirect: "error", credentials: "same-origin" });
    if (response.ok) return response;
    text = await response.text();
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Failed(0, "the server of this page does not answer");
  }
  let message = text.trim();
  try {
    message = String((JSON.parse(text) as { error?: unknown }).error);
  } catch {
    // It is the message itself.
  }
  throw new Failed(response.status, message);
}

/** The body of an answer, which can break off as well. */
async function json<T>(response: Response, signal?: AbortSignal): Promise<T> {
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failed(0, "the answer of the server of this page broke off");
  }
}

export async function get<T>(path: string, parameters: [string, string][] = [], signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams(parameters).toString();
  const init = signal ? { signal } : {};
  const response = await request(query === "" ? path : `${path}?${query}`, init);
  return json<T>(response, signal);
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  return json<T>(response, signal);
}

/** Reads a stream of JSON lines until it ends. `beat` is called for every piece, also for those that say nothing. */
export async function stream(
  path: string,
  parameters: [string, string][],
  signal: AbortSignal,
  each: (line: unknown) => void,
  beat: () => void,
): Promise<void> {
  const response = await request(`${path}?${new URLSearchParams(parameters).toString()}`, { signal });
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    beat();
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") each(JSON.parse(line));
  }
}

/** What the server says of itself and of the reader. */
export interface Session {
  login: "link" | "token";
  cluster: string;
  namespace: string;
  served: string[];
}

/** Where devices are, per slice: `0-3,7` read. */
export function places(slices: Record<string, string>): Map<string, Set<number>> {
  const found = new Map<string, Set<number>>();
  for (const [slice, ranges] of Object.entries(slices)) {
    const set = new Set<number>();
    for (const range of ranges.split(",")) {
      const [first, last] = range.split("-").map(Number);
      for (let place = first ?? 0; place <= (last ?? first ?? -1); place++) set.add(place);
    }
    found.set(slice, set);
  }
  return found;
}
