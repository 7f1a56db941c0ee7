// Requests of KServe V2 over gRPC, which browsers cannot send: the view shows how clients do.

import { withTriton } from "./triton_client.js";

export const title = "gRPC";
export const order = 70;
export const port = "grpc";
export const python = withTriton("grpc");

export function write() {
  return { path: "inference.GRPCInferenceService/ModelInfer", port, headers: {}, body: null, raw: null, note: "" };
}
