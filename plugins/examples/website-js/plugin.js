// The component's exports: the only file that imports the host's interfaces.
import * as clock from "pilothouse:plugin/clock@0.1.0";
import * as cluster from "pilothouse:plugin/cluster@0.1.0";
import * as log from "pilothouse:plugin/log@0.1.0";

import crd from "./build/crd.js";
import { plugin } from "./pilothouse.js";
import { website } from "./website.js";

export const { manifest, reconciler } = plugin({ ...website, crds: [crd] }, { clock, cluster, log });
