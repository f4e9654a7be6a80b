// What plugin.js imports: the interfaces of the host, of which pilothouse.d.ts has the types that an operator sees, and the CRD, of
// which build.js makes a module.
declare module "pilothouse:plugin/clock@0.1.0";
declare module "pilothouse:plugin/cluster@0.1.0";
declare module "pilothouse:plugin/log@0.1.0";
declare module "*/crd.js" {
  const crd: string;
  export default crd;
}
